"""HTTP jobs: one request, its redirects, and the judgement of its status.

`definition` reads what a job says, `request` what goes out, `urls` and `addresses` where to; `runner` is the door.
`client` is the home of aiohttp, which is imported with the first request.
"""
