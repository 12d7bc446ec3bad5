#!/usr/bin/env python3
"""Reads and writes safetensors files from their description alone; shares nothing with the library.

  independent_safetensors.py write FILE   a file with every dtype
  independent_safetensors.py read FILE    prints what it holds

It prints one line per tensor, sorted: name, dtype, shape and bytes in hexadecimal. Then the metadata.
"""

import json
import struct
import sys

ELEMENT_BYTES = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2, "I64": 8, "I32": 4, "I16": 2, "I8": 1, "U8": 1, "BOOL": 1}


def write(path):
    tensors = {
        "of.F64": ("F64", [2], struct.pack("<2d", 1.5, -0.0)),
        "of.F32": ("F32", [2, 2], struct.pack("<4f", 1.0, float("inf"), -3.25, 1e-40)),
        "of.F16": ("F16", [3], struct.pack("<3e", 1.0, -2.0, 65504.0)),
        "of.BF16": ("BF16", [2], b"\x80\x3f\x00\xc0"),
        "of.I64": ("I64", [], struct.pack("<q", -(2**62))),
        "of.I32": ("I32", [1, 1, 2], struct.pack("<2i", -1, 2**31 - 1)),
        "of.I16": ("I16", [3], struct.pack("<3h", -1, 0, 32767)),
        "of.I8": ("I8", [2], struct.pack("<2b", -128, 127)),
        "of.U8": ("U8", [2], bytes([0, 255])),
        "of.BOOL": ("BOOL", [3], bytes([1, 0, 1])),
        "empty \u00fc": ("F32", [0, 4], b""),
    }
    header = {"__metadata__": {"made by": "hand"}}
    data = b""
    for name, (dtype, shape, content) in tensors.items():  # in no particular order
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(content)]}
        data += content
    text = json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + data)


def read(path):
    with open(path, "rb") as file:
        content = file.read()
    (length,) = struct.unpack("<Q", content[:8])
    assert (8 + length) % 8 == 0, "the data is not aligned"
    header = json.loads(content[8 : 8 + length].decode("utf-8"))
    data = content[8 + length :]
    metadata = header.pop("__metadata__", {})
    covered = 0
    for name, entry in sorted(header.items(), key=lambda item: item[1]["data_offsets"]):
        begin, end = entry["data_offsets"]
        size = ELEMENT_BYTES[entry["dtype"]]
        count = 1
        for extent in entry["shape"]:
            count *= extent
        assert begin == covered and end - begin == count * size, f"{name} is out of place"
        assert begin % size == 0, f"{name} is not aligned"
        covered = end
    assert covered == len(data), "there are bytes left"
    show(header, data, metadata)


def show(header, data, metadata):
    for name, entry in sorted(header.items()):
        begin, end = entry["data_offsets"]
        print(name, entry["dtype"], json.dumps(entry["shape"]), data[begin:end].hex())
    print(json.dumps(metadata, sort_keys=True))


if __name__ == "__main__":
    {"write": write, "read": read}[sys.argv[1]](sys.argv[2])
