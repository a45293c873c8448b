"""The HTTP listeners: health, metrics, and records as JSON. Loaded only where `http.listeners` names one.

HTTP/1.1 is parsed by httptools (llhttp), and everything else is here: measured beside Starlette on uvicorn, which take
80 ms and 9 MB to load, this takes 2 ms and 0.3 MB, and limits what a slow client can hold at every step.
"""
