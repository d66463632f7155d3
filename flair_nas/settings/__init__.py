"""Settings of the commands: fields, validation, presets and YAML files."""
