"""From scores to results: paired statistics, tables, pictures and result files, shared by every comparison."""
