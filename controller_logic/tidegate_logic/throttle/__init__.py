"""Who is throttled while a broker is over its limit, how far, and when that ends."""
