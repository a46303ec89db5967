"""The product from its images and charts on a real node: installed, loaded, upgraded, hurt and taken away again."""
