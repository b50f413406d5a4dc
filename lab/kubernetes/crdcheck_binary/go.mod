module tidegate.io/lab/crdcheck

go 1.22.0
