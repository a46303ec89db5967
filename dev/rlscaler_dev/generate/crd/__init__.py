"""The CustomResourceDefinition and its reference page, generated from the API models."""
