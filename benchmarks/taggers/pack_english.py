"""Writes the English word vectors that come with the package.

    python -m benchmarks.taggers.pack_english en-md-300d.npz

The file has the vectors of spaCy's `en_core_web_md` 3.8: ``words`` (UTF-8, a line each), ``rows`` (uint16, the vector
of each word) and ``vectors`` (float16, [20000, 300]). The same file gives the same bytes.
"""

import sys

import numpy as np

from flair_nas import resource_path
from flair_nas.tagging.data.embedding_folder import TABLE, write_about, write_table

ABOUT = {
    "name": "english",
    "language": "en",
    "about": "Vectors of English words, the same for all their spellings. Several words may share a vector.",
    "source": "Explosion Vectors (OSCAR 2109 + Wikipedia + OpenSubtitles + WMT News Crawl), as in en_core_web_md 3.8; "
    "https://github.com/explosion/spacy-vectors-builder",
    "licence": "CC0-1.0",
}


def main() -> None:
    """Writes the folder."""
    source = np.load(sys.argv[1])
    rows = dict(zip(source["words"].tobytes().decode().split("\n"), source["rows"].tolist()))
    folder = resource_path("embeddings") / "english"
    folder.mkdir(exist_ok=True)
    write_about(folder, ABOUT | write_table(folder / TABLE, rows, source["vectors"].astype(np.float32)))


if __name__ == "__main__":
    main()
