"""The Helm charts' generated files: copies of what the chart installs, its schema's descriptions, its README."""
