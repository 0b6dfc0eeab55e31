//go:build tools

// Package tools only pins Koordinator, beside which ours is measured and compared.
package tools

import (
	_ "github.com/koordinator-sh/koordinator/cmd/koord-manager"
	_ "github.com/koordinator-sh/koordinator/cmd/koordlet"
)
