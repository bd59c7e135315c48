//go:build tools

// Package kwok names the command that plays nodes and kubelets.
package kwok

import _ "sigs.k8s.io/kwok/cmd/kwok"
