"""How ranks start: copies of a process that has imported PyTorch, which takes seconds, and no more."""

import multiprocessing

START = "forkserver"
multiprocessing.set_forkserver_preload(["torch.distributed.fsdp", "memfit.torch"])
