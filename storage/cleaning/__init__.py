"""Compaction: of every key only the last record stays, at its own offset. The rules are Kafka's.

    job = plan.job_for(log, …)       # on the log's thread: which segments, up to where; None if nothing is due
    for cleaned in clean(job, …):    # anywhere, in another process for choice: writes .cleaned files, changes nothing
        swap(log, cleaned)           # on the log's thread: a few renames

Two passes. The first notes the last offset of every key in the uncleaned part of the log, in a map of fixed size. The
second goes over all segments and leaves out the records whose key has a later one. Both work on windows of a few
megabytes, with one numpy operation for all records of a window where Python would need one step per record.
"""
