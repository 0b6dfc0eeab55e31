//go:build tools

// Package tools only pins JobSet's controller; both operators are of one Kubernetes, so they share what is compiled.
package tools

import _ "sigs.k8s.io/jobset"
