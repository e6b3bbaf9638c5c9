"""Synthetic weights keyed by tensor name: the same values as src/models/synthetic.h, bit for bit."""

import numpy as np

MASK = (1 << 64) - 1


def fnv1a(name: str) -> int:
    key = 0xCBF29CE484222325
    for byte in name.encode():
        key = ((key ^ byte) * 0x100000001B3) & MASK
    return key


def uniform(name: str, count: int) -> np.ndarray:
    """float32 in [-1, 1)."""
    with np.errstate(over="ignore"):
        z = np.uint64(fnv1a(name)) + (np.arange(count, dtype=np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        z = z ^ (z >> np.uint64(31))
    return (z >> np.uint64(40)).astype(np.float32) * np.float32(2.0**-23) - np.float32(1)


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
    elif len(shape) <= 1:
        out = f32(0.2) * u if last.endswith(("bias", "beta")) else f32(1) + f32(0.25) * u
    elif any(part in name for part in ("embed", "wte", "wpe")):
        out = f32(0.5) * u
    else:
        out = f32(np.sqrt(3.0 / shape[-1])) * u
    assert out.dtype == np.float32
    return out.reshape(shape)
