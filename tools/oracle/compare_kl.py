"""Compares log-probabilities dumped by dump_logits with a reference: how far, mean KL, perplexity, best tokens.

    python tools/oracle/compare_kl.py REFERENCE.npy OURS.bin TOKENS [--difference 0.02] [--kl 1e-6]

REFERENCE.npy and its .tokens file come from smollm2_reference.py. Exit status 1 when a limit is exceeded.
"""

import argparse
import pathlib

import numpy as np


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("reference")
    parser.add_argument("ours")
    parser.add_argument("tokens", type=pathlib.Path)
    parser.add_argument("--difference", type=float, default=0.02, help="limit on log-probabilities above -10")
    parser.add_argument("--kl", type=float, default=1e-6, help="limit on the mean divergence")
    options = parser.parse_args()
    reference = np.load(options.reference).astype(np.float64)
    ours = np.fromfile(options.ours, np.float32).reshape(-1, reference.shape[1]).astype(np.float64)
    reference = reference[: len(ours)]
    # Both were rounded to float32: make them sum to one again.
    reference, ours = (x - np.log(np.exp(x).sum(-1, keepdims=True)) for x in (reference, ours))
    tokens = np.array(options.tokens.read_text().split(), int)[: len(ours)]
    difference = np.abs(reference - ours)[reference > -10].max()
    kl = (np.exp(reference) * (reference - ours)).sum(-1)
    perplexity = [np.exp(-x[np.arange(len(tokens) - 1), tokens[1:]].mean()) for x in (reference, ours)]
    same = (reference.argmax(-1) == ours.argmax(-1)).mean()
    print(f"{len(ours)} positions: largest difference above -10 {difference:.2e}, mean KL {kl.mean():.2e}, "
          f"largest KL {kl.max():.2e}, same best token {same:.2%}, perplexity {perplexity[0]:.4f} and {perplexity[1]:.4f}")
    return 0 if difference <= options.difference and kl.mean() <= options.kl else 1


if __name__ == "__main__":
    raise SystemExit(main())
