"""Where files are: storage elements, the rules that turn logical names into places, replicas."""
