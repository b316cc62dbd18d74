"""Spark data sources, sink and jobs for triolog. Needs the extra `spark`; nothing here is imported by server or clients."""
