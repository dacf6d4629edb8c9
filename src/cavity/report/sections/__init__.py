"""The sections of a report, one file each: words and tables around the charts."""
