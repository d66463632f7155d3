"""Exported taggers, run by onnxruntime and NumPy: no module of this package imports PyTorch or Flair.

The small distribution flair-nas-runtime has these modules as the package `flair_nas_runtime`.
"""

from flair_nas.errors import FlairNasError as FlairNasError
from flair_nas.runtime.tagger import Tagger as Tagger
from flair_nas.version import __version__ as __version__

__all__ = ["FlairNasError", "Tagger"]
