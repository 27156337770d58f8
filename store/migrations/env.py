"""Alembic's entry point; runs on the connection that `store.migrate` passes. There is no offline mode."""

from alembic import context

from store.schema import metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    transactional_ddl=True,
    render_as_batch=True,
)
context.run_migrations()
