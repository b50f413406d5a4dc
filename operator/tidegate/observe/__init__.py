"""What passes and most commands start from: what is declared, and what Kafka has."""
