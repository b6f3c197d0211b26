"""What stands in for a master that is away: questions to name servers, and the moment to begin and to end."""
