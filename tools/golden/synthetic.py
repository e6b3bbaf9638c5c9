"""Synthetic weights keyed by tensor name: the same values as src/models/synthetic.h, bit for bit."""

import numpy as np

MASK = (1 << 64) - 1


def fnv1a(name: str) -> int:
    key = 0xCBF29CE484222325
    for byte in name.encode():
        key = ((key ^ byte) * 0x100000001B3) & MASK
    return key


def draws(name: str, count: int) -> np.ndarray:
    """24 random bits each."""
    with np.errstate(over="ignore"):
        z = np.uint64(fnv1a(name)) + (np.arange(count, dtype=np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        z = z ^ (z >> np.uint64(31))
    return z >> np.uint64(40)


def uniform(name: str, count: int) -> np.ndarray:
    """float32 in [-1, 1)."""
    return draws(name, count).astype(np.float32) * np.float32(2.0**-23) - np.float32(1)


def values(name: str, shape) -> np.ndarray:
    f32 = np.float32
    u = uniform(name, int(np.prod(shape, dtype=np.int64)))
    last = name.rsplit(".", 1)[-1]
    if last == "A_log":
        out = f32(0.5) + f32(0.5) * u
    elif last == "dt_bias":
        out = f32(-1) + u
    elif last == "D":
        out = f32(1) + f32(0.5) * u
    elif last == "tid2eid":
        out = np.floor(f32(2) + f32(2) * u)
    elif last.startswith("quant_"):
        out = f32(0.015625) + f32(0.0078125) * u
    elif len(shape) <= 1:
        out = f32(0.2) * u if last.endswith(("bias", "beta")) else f32(1) + f32(0.25) * u
    elif any(part in name for part in ("embed", "wte", "wpe")):
        out = f32(0.5) * u
    else:
        out = f32(np.sqrt(3.0 / shape[-1])) * u
    assert out.dtype == np.float32
    return out.reshape(shape)


def affine_values(name: str, shape, bits: int, group: int) -> np.ndarray:
    """The float32 values of a weight kept as affine codes with float16 scales and biases: the same as
    tests/golden/quantized.cpp, bit for bit."""
    f32 = np.float32
    count = int(np.prod(shape, dtype=np.int64))
    top = f32((1 << bits) - 1)
    codes = (draws(name, count) & np.uint64((1 << bits) - 1)).astype(np.float32).reshape(-1, group)
    reach = f32(0.5) if "embed" in name else f32(np.sqrt(3.0 / shape[-1]))
    width = f32(2) * reach / top
    scales = (width + width * f32(0.25) * uniform(name + ".scales", count // group)).astype(np.float16).astype(f32)
    middle = f32(-0.5) * top * scales
    biases = (middle + middle * f32(0.1) * uniform(name + ".biases", count // group)).astype(np.float16).astype(f32)
    out = codes * scales[:, None] + biases[:, None]
    assert out.dtype == np.float32
    return out.reshape(shape)
