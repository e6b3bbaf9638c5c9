"""Writes src/sample/testdata/reference.json: what each stage of the sampling chain leaves, worked out here by its
definition in double precision and on lists, so that it shares nothing with src/sample but the words of the
specification. Philox 4x32-10 is written out too: the draws must be the same.

    python tools/golden/sampling.py
"""

import json
import math
import pathlib
import random

NEVER = float("-inf")
VOCAB = 24
DEFAULT = ["penalties", "dry", "top_n_sigma", "top_k", "typ_p", "top_p", "min_p", "xtc", "temperature"]


def philox(seed, choice, position, lane):
    c, k = [position & 0xFFFFFFFF, position >> 32, lane, 0], [seed, choice]
    for _ in range(10):
        a, b = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [(b >> 32) ^ c[1] ^ k[0], b & 0xFFFFFFFF, (a >> 32) ^ c[3] ^ k[1], a & 0xFFFFFFFF]
        k = [(k[0] + 0x9E3779B9) & 0xFFFFFFFF, (k[1] + 0xBB67AE85) & 0xFFFFFFFF]
    return ((c[0] << 32 | c[1]) >> 11) / 2.0**53


def softmax(pairs):
    top = max(x for _, x in pairs)
    weights = [math.exp(x - top) for _, x in pairs]
    return [w / sum(weights) for w in weights]


def entropy(p):
    return -sum(x * math.log(x) for x in p if x > 0)


def last(history, count):
    return history[-count:] if count > 0 else history if count < 0 else []


def dry(history, p):
    """The longest run before each earlier place that equals the end of the history, inside what no breaker cuts."""
    tail = 0
    for token in reversed(history):
        if chr(65 + token) in p.get("dry_sequence_breakers", []):
            break
        tail += 1
    window = last(history, p.get("dry_penalty_last_n", 64))
    allowed, found = p.get("dry_allowed_length", 2), {}
    for at in range(1, len(window)):
        run = 0
        while run < at and run < tail and window[at - 1 - run] == window[len(window) - 1 - run]:
            run += 1
        if run >= allowed:
            found[window[at]] = max(found.get(window[at], 0), run)
    return {token: p["dry_multiplier"] * p.get("dry_base", 1.75) ** (run - allowed) for token, run in found.items()}


class Chain:
    def __init__(self, p, seed):
        self.p, self.seed = p, seed
        self.mu = 2 * p.get("mirostat_tau", 5.0)
        self.decay, self.target = p.get("adaptive_decay", 0.9), p.get("adaptive_target", -1.0)
        self.weight = 1 / (1 - self.decay)
        self.sum = self.target * self.weight

    def __call__(self, logits, history, position):
        """The token drawn, and what it was drawn from."""
        p, rows, ranked = self.p, list(enumerate(logits)), False
        stages = p.get("samplers", DEFAULT)
        if p.get("mirostat"):
            stages = [s for s in stages if s in ("penalties", "dry")] + ["temperature"]
        adaptive = "adaptive_p" in stages and self.target >= 0
        keep = max(p.get("min_keep", 1), 1)

        def rank():
            nonlocal rows, ranked
            rows, ranked = sorted(rows, key=lambda e: (-e[1], e[0])), True

        for stage in stages:
            if stage == "penalties":
                window = last(history, p.get("repeat_last_n", 64))
                out = []
                for token, x in rows:
                    count = window.count(token)
                    if count:
                        x = x / p.get("repeat_penalty", 1) if x > 0 else x * p.get("repeat_penalty", 1)
                        x -= count * p.get("frequency_penalty", 0) + p.get("presence_penalty", 0)
                    out.append((token, x))
                rows = out
                ranked = False
            elif stage == "dry" and p.get("dry_multiplier", 0) > 0:
                held = dry(history, p)
                rows = [(token, x - held.get(token, 0)) for token, x in rows]
                ranked = False
            elif stage == "top_n_sigma" and p.get("top_n_sigma", 0) > 0:
                mean = sum(x for _, x in rows) / len(rows)
                deviation = math.sqrt(sum((x - mean) ** 2 for _, x in rows) / len(rows))
                floor = max(x for _, x in rows) - p["top_n_sigma"] * deviation
                rows = [e for e in rows if e[1] >= floor]
            elif stage == "top_k" and 0 < p.get("top_k", 0) < len(rows):
                rank()
                rows = rows[:max(p["top_k"], keep)]
            elif stage == "typ_p" and p.get("typical_p", 1) < 1:
                rank()
                probs = softmax(rows)
                mean = entropy(probs)
                order = sorted(range(len(rows)), key=lambda i: abs(-math.log(probs[i]) - mean))
                taken, reached = [], 0.0
                for i in order:
                    taken.append(i)
                    reached += probs[i]
                    if reached > p["typical_p"] and len(taken) >= keep:
                        break
                rows = [rows[i] for i in sorted(taken)]
            elif stage == "top_p" and p.get("top_p", 1) < 1:
                rank()
                probs, reached, count = softmax(rows), 0.0, 0
                while count < len(rows) and not (reached >= p["top_p"] and count >= keep):
                    reached += probs[count]
                    count += 1
                rows = rows[:count]
            elif stage == "min_p" and p.get("min_p", 0) > 0:
                probs = softmax(rows)
                kept = [e for e, q in zip(rows, probs) if q >= p["min_p"] * max(probs)]
                if len(kept) < keep:
                    rank()
                    kept = rows[:keep]
                rows = kept
            elif stage == "xtc" and p.get("xtc_probability", 0) > 0 and p.get("xtc_threshold", 0.1) <= 0.5:
                if len(rows) > 1 and philox(self.seed, 0, position, 1) < p["xtc_probability"]:
                    above = sorted((e for e, q in zip(rows, softmax(rows)) if q >= p.get("xtc_threshold", 0.1)),
                                   key=lambda e: (-e[1], e[0]))
                    if len(above) > 1 and len(rows) - len(above) + 1 >= keep:
                        rows = [e for e in rows if e not in above[:-1]]
            elif stage == "temperature":
                value, reach = p.get("temperature", 0.8), p.get("dynatemp_range", 0)
                if reach > 0 and len(rows) > 1:
                    low, high = max(0, value - reach), value + reach
                    share = entropy(softmax(rows)) / math.log(len(rows))
                    value = low + (high - low) * share ** p.get("dynatemp_exponent", 1)
                rows = [(token, x / value) for token, x in rows]
        if p.get("mirostat"):
            rank()
            probs = softmax(rows)
            if p["mirostat"] == 1:
                pairs = [(math.log((i + 2) / (i + 1)), rows[i][1] - rows[i + 1][1]) for i in range(len(rows) - 1)]
                s = sum(t * b for t, b in pairs) / sum(t * t for t, _ in pairs)
                excess = s - 1
                k = (excess * 2**self.mu / (1 - len(logits) ** -excess)) ** (1 / s)
                rows = rows[:int(min(max(k, 1), len(rows)))]
            else:
                count = 0
                while count < len(rows) and -math.log2(probs[count]) <= self.mu:
                    count += 1
                rows = rows[:max(count, 1)]
        own = softmax(rows)
        shown = own
        if adaptive:
            target = min(max(2 * self.target - self.sum / self.weight, 0), 1)
            shown = softmax([(t, 5 - 10 * (abs(q - target) / 0.3)**2 / (1 + abs(q - target) / 0.3))
                             for (t, _), q in zip(rows, own)])
        aim, reached, at = philox(self.seed, 0, position, 0), 0.0, len(rows) - 1
        for i, q in enumerate(shown):
            reached += q
            if reached > aim:
                at = i
                break
        if p.get("mirostat"):
            self.mu -= p.get("mirostat_eta", 0.1) * (-math.log2(own[at]) - p.get("mirostat_tau", 5.0))
        if adaptive:
            self.sum = own[at] + self.decay * self.sum
            self.weight = 1 + self.decay * self.weight
        left = sorted(((t, math.log(q)) for (t, _), q in zip(rows, shown) if q > 0), key=lambda e: (-e[1], e[0]))
        return rows[at][0], left


CASES = {
    "temperature": {"temperature": 0.7},
    "penalties": {"repeat_penalty": 1.3, "frequency_penalty": 0.4, "presence_penalty": 0.25, "repeat_last_n": 9},
    "penalties whole context": {"repeat_penalty": 0.8, "repeat_last_n": -1},
    "dry": {"dry_multiplier": 0.9, "dry_base": 1.6, "dry_allowed_length": 2, "dry_penalty_last_n": -1},
    "dry window": {"dry_multiplier": 0.5, "dry_penalty_last_n": 12, "dry_allowed_length": 1},
    "dry breakers": {"dry_multiplier": 0.7, "dry_penalty_last_n": -1, "dry_sequence_breakers": ["C"]},
    "top_n_sigma": {"top_n_sigma": 1.1},
    "top_k": {"top_k": 5},
    "typical": {"typical_p": 0.6},
    "typical keeps": {"typical_p": 0.1, "min_keep": 4},
    "top_p": {"top_p": 0.75},
    "min_p": {"min_p": 0.08},
    "min_p keeps": {"min_p": 0.9, "min_keep": 3},
    "xtc always": {"xtc_probability": 1.0, "xtc_threshold": 0.08},
    "xtc sometimes": {"xtc_probability": 0.5, "xtc_threshold": 0.08},
    "dynatemp": {"temperature": 0.9, "dynatemp_range": 0.5, "dynatemp_exponent": 1.5},
    "mirostat 1": {"mirostat": 1, "mirostat_tau": 3.0, "mirostat_eta": 0.2, "temperature": 1.1},
    "mirostat 2": {"mirostat": 2, "mirostat_tau": 2.0, "mirostat_eta": 0.3, "temperature": 0.9},
    "adaptive": {"samplers": ["min_p", "temperature", "adaptive_p"], "min_p": 0.02, "temperature": 1.0,
                 "adaptive_target": 0.4, "adaptive_decay": 0.8},
    "everything": {"repeat_penalty": 1.1, "dry_multiplier": 0.4, "top_n_sigma": 2.0, "top_k": 18, "typical_p": 0.95,
                   "top_p": 0.95, "min_p": 0.01, "xtc_probability": 0.4, "xtc_threshold": 0.2, "temperature": 1.2},
    "temperature first": {"samplers": ["temperature", "top_p", "min_p"], "temperature": 1.6, "top_p": 0.8, "min_p": 0.05},
    "filters, then penalties": {"samplers": ["top_k", "penalties", "temperature"], "top_k": 9, "repeat_penalty": 1.5,
                                "temperature": 0.6},
}


def main():
    rng, out = random.Random(20), []
    for name, p in CASES.items():
        p = {"temperature": 1.0, **p}
        seed, history, chain = rng.randrange(1 << 32), [rng.randrange(6) for _ in range(14)], None
        chain, steps = Chain(p, seed), []
        for _ in range(12):
            logits = [round(rng.gauss(0, 2.0), 4) for _ in range(VOCAB)]
            token, left = chain(logits, history, len(history))
            steps.append({"logits": logits, "token": token, "left": [[t, round(x, 7)] for t, x in left]})
            history = history + [token]
        out.append({"name": name, "params": p, "seed": seed, "history": history[:14], "steps": steps})
    path = pathlib.Path(__file__).resolve().parents[2] / "src" / "sample" / "testdata" / "reference.json"
    path.write_text("[\n" + ",\n".join(json.dumps(one, separators=(",", ":")) for one in out) + "\n]\n")


if __name__ == "__main__":
    main()
