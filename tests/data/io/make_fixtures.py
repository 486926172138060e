"""Rewrites the files of this folder with NumPy, ml_dtypes and safetensors themselves.

The values are x[i] = (i - 7) / 4 for i = 0, 1, ..., which all three dtypes hold exactly.
    pip install numpy ml_dtypes safetensors && python make_fixtures.py
"""

import pathlib

import ml_dtypes
import numpy as np
import safetensors.numpy

HERE = pathlib.Path(__file__).parent


def ramp(shape, dtype):
    return ((np.arange(np.prod(shape)) - 7) / 4).astype(dtype).reshape(shape)


SHAPE = (2, 3, 2, 4)
np.save(HERE / "f32.npy", ramp(SHAPE, np.float32))
np.save(HERE / "f16.npy", ramp(SHAPE, np.float16))
np.save(HERE / "bf16.npy", ramp(SHAPE, ml_dtypes.bfloat16))
np.save(HERE / "bf16_resaved.npy", np.load(HERE / "bf16.npy"))  # '|V2'
np.save(HERE / "f32_no_batch.npy", ramp(SHAPE[1:], np.float32))
np.save(HERE / "sinks.npy", ramp((2,), np.float32))
np.save(HERE / "big_endian.npy", ramp(SHAPE, ">f4"))
np.save(HERE / "fortran.npy", np.asfortranarray(ramp(SHAPE, np.float32)))
np.save(HERE / "int32.npy", ramp(SHAPE, np.int32))
for version in ((2, 0), (3, 0)):
    with open(HERE / f"f32_v{version[0]}.npy", "wb") as file:
        np.lib.format.write_array(file, ramp(SHAPE, np.float32), version=version)
safetensors.numpy.save_file(
    {
        "q": ramp(SHAPE, np.float32),
        "k": ramp(SHAPE[1:], ml_dtypes.bfloat16),
        "v": ramp(SHAPE, np.float16),
        "tokens": np.arange(3, dtype=np.int64),
    },
    HERE / "mixed.safetensors",
    metadata={"layer": "3"},
)
safetensors.numpy.save_file(
    {"out": ramp(SHAPE, ml_dtypes.bfloat16), "lse": ramp((2, 2, 3), np.float32)},
    HERE / "result.safetensors",
)
