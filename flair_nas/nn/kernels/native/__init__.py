"""TODO flair_nas.nn.kernels.native."""
