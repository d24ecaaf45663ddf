"""The stores on SQL: PostgreSQL for a site, SQLite for a laptop; one adapter, by SQLAlchemy Core."""
