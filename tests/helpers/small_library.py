"""A C++ source that compiles in a moment."""

from __future__ import annotations

import shutil

REAL = next((path for path in map(shutil.which, ("c++", "g++", "clang++")) if path), None)
SOURCE = """
#if defined(_OPENMP)
#include <omp.h>
#endif
#include "answer.h"
extern "C" int answer() { return ANSWER; }
extern "C" int threads(int wanted) {
  int count = 0;
#pragma omp parallel num_threads(wanted) reduction(+ : count)
  count += 1;
  return count;
}
extern "C" int default_threads() {
#if defined(_OPENMP)
  return omp_get_max_threads();
#else
  return -1;
#endif
}
"""
