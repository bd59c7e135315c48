"""Objects: manifests read from YAML and JSON into typed structs, and every way in which they can be wrong."""
