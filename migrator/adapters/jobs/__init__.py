"""The job store: `Jobs` on Redis, `MemoryJobs` without it, and the rules that both keep.

Pure are `model` (jobs and answers), `rules` (what may be done to a job, and what it makes of it) and `words` (what
callers say, checked). `store` has the methods, sync and async; the steps towards Redis are in `core` and `claim`, and
`jobs` and `memory` put them together.
"""
