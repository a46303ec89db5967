"""Model servers that the token level plays in real time for the pods of a Deployment."""
