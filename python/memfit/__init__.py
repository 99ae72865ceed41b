"""memfit: plans device memory for training and inference.

`import memfit` needs nothing but Python. `memfit.torch` needs your own PyTorch (2.14 or newer).
"""
