"""The pytest plug-in for authors of functions: fixtures that open one function, without a server."""
