"""Curves of histories, and charts of searches and layers."""
