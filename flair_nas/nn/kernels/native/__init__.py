"""The engine in C++: compiled for this processor, kept, loaded and called."""
