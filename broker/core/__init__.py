"""What every part of the broker may use: errors, deferred answers, the lease, the table of APIs."""
