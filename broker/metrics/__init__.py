"""What a node tells about itself: read from its parts when it is asked, in slices."""
