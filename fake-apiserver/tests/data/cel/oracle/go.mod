module example.com/oracle

go 1.26

require (
	github.com/google/cel-go v0.26.0
	k8s.io/apiextensions-apiserver v0.36.2
	k8s.io/apiserver v0.36.2
)
