"""Scrubbing: reading everything again, slowly, to find what a disk has changed since it was written.

    job = plan.segment_job(log, …)      # on the log's thread: what is to be read, and what is known of it
    result = runner.run(job)            # anywhere, in another process for choice: reads, and changes nothing
    mending.prepare(…), put_in_place()  # what can be made anew from the batches is

One segment at a time, so that what is found is acted upon at once, and the log goes on meanwhile. What to do about
damaged batches is not decided here: it takes another replica.
"""
