from mtlscale.cli import main

main()
