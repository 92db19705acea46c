"""What a run leaves behind: rows, the manifest, and the folder that holds them."""
