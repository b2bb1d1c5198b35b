"""Modules for other libraries; each needs the library that it is named after."""
