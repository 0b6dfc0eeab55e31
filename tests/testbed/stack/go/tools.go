//go:build tools

// Package tools only pins the command that tests/testbed/setup compiles.
package tools

import _ "github.com/docker/compose/v2/cmd"
