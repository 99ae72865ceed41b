"""memfit: plans device memory for training and inference.

`import memfit` needs nothing but Python. The PyTorch face, `memfit.torch`, needs your own torch (2.14 or newer).
"""
