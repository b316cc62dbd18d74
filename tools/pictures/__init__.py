"""Pictures of a log as SVG: how a lookup goes, and where the room on the disk goes. No script, no library."""
