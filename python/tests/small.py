"""A graph of two ops."""

TWO_OPS = {
    "schema": "memfit-graph/1",
    "name": "two ops",
    "values": [
        {"name": "x", "bytes": 4096, "role": "input"},
        {"name": "h", "bytes": 8192},
        {"name": "y", "bytes": 4096, "role": "output"},
    ],
    "ops": [
        {"name": "up", "kind": "matmul", "reads": [0], "writes": [1]},
        {"name": "down", "kind": "matmul", "reads": [1], "writes": [2]},
    ],
    "results": [2],
}
