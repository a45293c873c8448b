"""Fair shares: the quotas of users, client ids and addresses, and how requests and connections are held to them."""
