"""One file (or folder) per API, named as the API; each holds the function of that name, which registers itself."""
