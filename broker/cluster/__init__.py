"""This broker among others: the quorum's membership, registration, forwarding, topics made on demand."""
