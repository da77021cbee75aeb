"""What all driver suites are run with; each module is one noun."""
