"""The active controller: it keeps watch over the brokers, and answers what they and the clients ask of it."""
