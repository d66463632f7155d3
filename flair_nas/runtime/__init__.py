"""Exported taggers, run by onnxruntime and NumPy: no module of this package imports PyTorch or Flair."""
